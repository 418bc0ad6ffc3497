// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import java.util.Map;
import java.util.function.Function;

/**
 * One configuration setting, declared once with all that the documentation says about it.
 *
 * @param key its name in the Spark configuration
 * @param type what its value looks like: duration, size, name...
 * @param defaultText the value that it has when it is not set
 * @param doc what it does, in a sentence or two
 * @param parse turns the text into the value; throws IllegalArgumentException if it cannot
 */
public record Setting<T>(
    String key, String type, String defaultText, String doc, Function<String, T> parse) {

  /** The value in {@code conf}, or the default. */
  T in(Map<String, String> conf) {
    String text = conf.getOrDefault(key, defaultText);
    try {
      return parse.apply(text.trim());
    } catch (IllegalArgumentException e) {
      throw new AllReduceException.Setup(
          "%s is set to \"%s\", which is not a valid %s (%s). The default is \"%s\"."
              .formatted(key, text, type, e.getMessage(), defaultText),
          e);
    }
  }
}
