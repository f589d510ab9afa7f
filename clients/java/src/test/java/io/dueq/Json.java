package io.dueq;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Reads one JSON value: a map, a list, text, a Long, a Boolean or null. */
final class Json {
  private final String text;
  private int at;

  private Json(String text) {
    this.text = text;
  }

  static Object read(String text) {
    var json = new Json(text.strip());
    var value = json.value();
    if (json.at != json.text.length()) {
      throw new IllegalArgumentException("more than one value: " + text);
    }
    return value;
  }

  private Object value() {
    switch (text.charAt(at)) {
      case '{': {
        Map<String, Object> map = new LinkedHashMap<>();
        for (at += 1; text.charAt(at) != '}'; skip(',')) {
          var name = string();
          skip(':');
          map.put(name, value());
        }
        at += 1;
        return map;
      }
      case '[': {
        List<Object> list = new ArrayList<>();
        for (at += 1; text.charAt(at) != ']'; skip(',')) {
          list.add(value());
        }
        at += 1;
        return list;
      }
      case '"':
        return string();
      default: {
        var start = at;
        while (at < text.length() && ",]}".indexOf(text.charAt(at)) < 0) {
          at += 1;
        }
        var word = text.substring(start, at);
        return word.equals("null") ? null : word.matches("true|false") ? (Object) Boolean.valueOf(word) : Long.valueOf(word);
      }
    }
  }

  private void skip(char one) {
    if (text.charAt(at) == one) {
      at += 1;
    }
  }

  private String string() {
    var found = new StringBuilder();
    for (at += 1; text.charAt(at) != '"'; at += 1) {
      if (text.charAt(at) != '\\') {
        found.append(text.charAt(at));
        continue;
      }
      at += 1;
      switch (text.charAt(at)) {
        case 'n' -> found.append('\n');
        case 't' -> found.append('\t');
        case 'r' -> found.append('\r');
        case 'b' -> found.append('\b');
        case 'f' -> found.append('\f');
        case 'u' -> {
          found.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
          at += 4;
        }
        default -> found.append(text.charAt(at));
      }
    }
    at += 1;
    return found.toString();
  }
}
