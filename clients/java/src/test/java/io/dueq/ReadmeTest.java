package io.dueq;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Test;

/** Runs the programs of the README as a reader would, and checks what all packages of dueq agree on. */
class ReadmeTest {
  private static final Pattern PROGRAM = Pattern.compile("^```java\\n(.*?)^```", Pattern.MULTILINE | Pattern.DOTALL);

  @Test
  void theProgramsOfTheReadmeDoWhatTheySay() throws Exception {
    var printed = new ArrayList<String>();
    var folder = Files.createTempDirectory("dueq-java-");
    var file = folder.resolve("QuickStart.java");
    try (var server = RedisServer.of()) {
      var programs = PROGRAM.matcher(Files.readString(Path.of("README.md")));
      while (programs.find()) {
        Files.writeString(file, programs.group(1).replace("redis://127.0.0.1:6379/", server.url()));
        var java = Path.of(System.getProperty("java.home"), "bin", "java").toString();
        var process = new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), file.toString())
            .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        printed.add(new String(process.getInputStream().readAllBytes()));
        assertEquals(0, process.waitFor());
      }
    } finally {
      Files.delete(file);
      Files.delete(folder);
    }
    assertEquals(List.of("order:42: rate it, attempt 1\n", "SCHEDULED CANCELLED\n", "1 created, 0 kept\n"), printed);
  }

  @Test
  void theVersionIsThatOfTheLibraryAndOnlyLettuceIsNeeded() throws Exception {
    var manifest = Files.readString(RedisServer.ROOT.resolve("Cargo.toml"));
    var version = Pattern.compile("^version = \"(.*)\"$", Pattern.MULTILINE).matcher(manifest);
    assertTrue(version.find());
    var pom = Files.readString(Path.of("pom.xml"));
    assertTrue(pom.contains("<artifactId>dueq-client</artifactId>\n  <version>" + version.group(1) + "</version>"));
    assertEquals(3, pom.split("<dependency>").length, "Lettuce, and JUnit for tests");
  }

  @Test
  void theEmbeddedScriptsAreThoseOfLuaDist() throws Exception {
    try (var files = Files.list(RedisServer.ROOT.resolve("lua/dist"))) {
      var verbs = files.map(path -> path.getFileName().toString()).filter(name -> name.endsWith(".lua")).toList();
      assertTrue(verbs.size() > 20);
      for (var name : verbs) {
        var text = Files.readAllBytes(RedisServer.ROOT.resolve("lua/dist").resolve(name));
        var script = Scripts.of(name.substring(0, name.length() - 4));
        assertEquals(new String(text, "UTF-8"), script.text());
        var sha = java.security.MessageDigest.getInstance("SHA-1").digest(text);
        assertEquals(HexFormat.of().formatHex(sha), script.sha());
      }
    }
  }

  @Test
  void onlyTheFilesOfServersKnowTheRedisClient() throws Exception {
    try (var files = Files.list(Path.of("src/main/java/io/dueq"))) {
      var knows = new ArrayList<String>();
      for (var file : files.sorted().toList()) {
        if (Files.isRegularFile(file) && Files.readString(file).contains("import io.lettuce")) {
          knows.add(file.getFileName().toString());
        }
      }
      assertEquals(List.of("Client.java", "Line.java", "Server.java", "Servers.java"), knows);
    }
  }
}
