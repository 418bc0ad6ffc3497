// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.Schedule;

/** How the command line and the table name things; where rccl-tests has a name, it is that one. */
final class Names {
  private Names() {}

  static String of(DataType type) {
    return switch (type) {
      case FLOAT64 -> "double";
      case FLOAT32 -> "float";
      case FLOAT16 -> "half";
      case BFLOAT16 -> "bfloat16";
      case INT32 -> "int32";
      case INT64 -> "int64";
    };
  }

  static String of(ReduceOp op) {
    return switch (op) {
      case SUM -> "sum";
      case PRODUCT -> "prod";
      case MIN -> "min";
      case MAX -> "max";
      case AVERAGE -> "avg";
    };
  }

  /** As our own settings name it. */
  private static String own(Enum<?> value) {
    return value.name().toLowerCase(Locale.ROOT).replace('_', '-');
  }

  static List<DataType> types(String list) {
    return parse("data type", list, DataType.values(), Names::of);
  }

  static List<ReduceOp> ops(String list) {
    return parse("reduce op", list, ReduceOp.values(), Names::of);
  }

  static List<Schedule> schedules(String list) {
    return parse("schedule", list, Schedule.values(), Schedule::text);
  }

  static List<Collective> collectives(String list) {
    return parse("collective", list, Collective.values(), Collective::text);
  }

  /** A list with commas, or all. Our own names are understood too. */
  private static <E extends Enum<E>> List<E> parse(
      String what, String list, E[] values, Function<E, String> name) {
    if (list.equals("all")) {
      return List.of(values);
    }
    var parsed = new ArrayList<E>();
    for (String word : list.split(",", -1)) {
      String text = word.strip().toLowerCase(Locale.ROOT).replace('_', '-');
      parsed.add(
          Arrays.stream(values)
              .filter(value -> name.apply(value).equals(text) || own(value).equals(text))
              .findFirst()
              .orElseThrow(
                  () ->
                      new IllegalArgumentException(
                          "\"%s\" is no %s; there are %s, and all"
                              .formatted(word, what, names(values, name)))));
    }
    return parsed;
  }

  private static <E> String names(E[] values, Function<E, String> name) {
    return Arrays.stream(values).map(name).collect(Collectors.joining(", "));
  }
}
