// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.util.ArrayList;
import java.util.List;

/**
 * Two logarithmic axes in a rectangle of a drawing: bytes to the right, values upwards.
 *
 * @param left of the rectangle
 * @param top of the rectangle
 */
record LogAxes(
    int left,
    int top,
    int width,
    int height,
    double leastX,
    double mostX,
    double leastY,
    double mostY) {
  private static final double[] STEPS = {1, 2, 5};

  /** A line on an axis, and what is written at it; nothing is written at a minor one. */
  record Tick(double value, boolean minor) {}

  /** Axes that hold all of {@code points}, which have at least one. */
  static LogAxes around(int left, int top, int width, int height, List<PerfSvg.Point> points) {
    double leastX = points.stream().mapToDouble(PerfSvg.Point::bytes).min().orElseThrow();
    double mostX = points.stream().mapToDouble(PerfSvg.Point::bytes).max().orElseThrow();
    double leastY = points.stream().mapToDouble(PerfSvg.Point::value).min().orElseThrow();
    double mostY = points.stream().mapToDouble(PerfSvg.Point::value).max().orElseThrow();
    return new LogAxes(
        left,
        top,
        width,
        height,
        leastX,
        mostX > leastX ? mostX : leastX * 2,
        stepBelow(leastY),
        stepAbove(Math.max(mostY, leastY * 2)));
  }

  double x(double bytes) {
    return left + width * Math.log(bytes / leastX) / Math.log(mostX / leastX);
  }

  double y(double value) {
    return top + height - height * Math.log(value / leastY) / Math.log(mostY / leastY);
  }

  /** Powers of two, at most nine. */
  List<Tick> xTicks() {
    int first = (int) Math.ceil(Math.log(leastX) / Math.log(2) - 1e-9);
    int last = (int) Math.floor(Math.log(mostX) / Math.log(2) + 1e-9);
    int step = Math.max(1, Math.ceilDiv(last - first, 8));
    var ticks = new ArrayList<Tick>();
    for (int power = first; power <= last; power += step) {
      ticks.add(new Tick(Math.pow(2, power), false));
    }
    return ticks;
  }

  /** Powers of ten, and 2 and 5 times those; the latter without text where there are many. */
  List<Tick> yTicks() {
    boolean many = mostY / leastY > 500;
    var ticks = new ArrayList<Tick>();
    for (double decade = decade(leastY); decade <= mostY; decade *= 10) {
      for (double step : STEPS) {
        double value = decade * step;
        if (value >= leastY * 0.999 && value <= mostY * 1.001) {
          ticks.add(new Tick(value, many && step != 1));
        }
      }
    }
    return ticks;
  }

  private static double decade(double value) {
    return Math.pow(10, Math.floor(Math.log10(value) + 1e-9));
  }

  private static double stepBelow(double value) {
    double decade = decade(value);
    return value >= 5 * decade ? 5 * decade : value >= 2 * decade ? 2 * decade : decade;
  }

  private static double stepAbove(double value) {
    double decade = decade(value);
    for (double step : STEPS) {
      if (value <= step * decade * (1 + 1e-9)) {
        return step * decade;
      }
    }
    return 10 * decade;
  }
}
