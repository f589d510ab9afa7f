package io.dueq;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The scripts of lua/dist, which the build puts into the package: the text and the SHA-1 of each. */
record Scripts(String text, String sha) {
  private static final Map<String, Scripts> KNOWN = new ConcurrentHashMap<>();

  static Scripts of(String verb) {
    return KNOWN.computeIfAbsent(verb, Scripts::read);
  }

  private static Scripts read(String verb) {
    try (var stream = Scripts.class.getResourceAsStream("scripts/" + verb + ".lua")) {
      var bytes = stream.readAllBytes();
      var sha = HexFormat.of().formatHex(MessageDigest.getInstance("SHA-1").digest(bytes));
      return new Scripts(new String(bytes, StandardCharsets.UTF_8), sha);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }
}
