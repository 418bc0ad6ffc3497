// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;

/**
 * A run as a drawing: time and bus bandwidth over size, both axes logarithmic, a line for each
 * collective, schedule, type and reduce op, and a dashed one for the limit: memcpy of as many bytes
 * by all ranks at once.
 */
final class PerfSvg {
  private static final List<String> COLOURS =
      List.of("#0b62a4", "#d1622b", "#2c8a4b", "#8e44ad", "#b8860b", "#c0245e", "#4a5568");
  private static final String LIMIT_COLOUR = "#111111";
  private static final String LIMIT = "limit: memcpy on all ranks at once";
  private static final int WIDTH = 1000;
  private static final int LEGEND_COLUMNS = 3;
  private static final int LEGEND_ROW = 20;

  /** One point of a line. */
  record Point(long bytes, double value) {}

  /** One line of a panel. */
  private record Series(String name, String colour, String dashes, List<Point> points) {}

  /** What is drawn of a case that took so many nanoseconds. */
  @FunctionalInterface
  private interface Metric {
    double of(Case row, double nanos);
  }

  private final RunInfo info;
  private final Job job;
  private final int ranks;
  private final List<Measured> all;
  private final StringBuilder svg = new StringBuilder();

  private PerfSvg(RunInfo info, Job job, int ranks, List<Measured> all) {
    this.info = info;
    this.job = job;
    this.ranks = ranks;
    this.all = all;
  }

  /** The document; out-of-place times where both were measured. */
  static String draw(RunInfo info, Job job, int ranks, List<Measured> all) {
    return new PerfSvg(info, job, ranks, all).document();
  }

  private String document() {
    List<Series> times = series((_, nanos) -> nanos / 1_000);
    List<Series> buses =
        series((row, nanos) -> row.bytes(ranks) / nanos * row.collective().busFactor(ranks));
    int top = 104 + Math.ceilDiv(times.size(), LEGEND_COLUMNS) * LEGEND_ROW;
    int height = top + 390;
    line("<?xml version=\"1.0\" encoding=\"UTF-8\"?>");
    line(
        """
        <svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %1$d %2$d" width="%1$d" height="%2$d" \
        font-family="sans-serif" font-size="12">
        <rect width="%1$d" height="%2$d" fill="#ffffff"/>\
        """
            .formatted(WIDTH, height));
    text(24, 30, "font-size=\"17\" font-weight=\"bold\"", title());
    text(24, 50, "fill=\"#555555\"", subtitle());
    legend(times, 76);
    panel(70, top, "time per call (us)", times);
    panel(570, top, "bus bandwidth (GB/s)", buses);
    line("</svg>");
    return svg.toString();
  }

  private String title() {
    var collectives = job.cases().stream().map(row -> row.collective().text()).distinct().toList();
    return "%s on %d ranks, host backend".formatted(String.join(", ", collectives), ranks);
  }

  private String subtitle() {
    return "%d processors (%s), %s buffers, %s"
        .formatted(
            info.processors(),
            info.processor(),
            job.registered() ? "registered" : "unregistered",
            info.mode().equals("spark") ? "Spark tasks" : "processes");
  }

  private List<Series> series(Metric metric) {
    var lines = new LinkedHashMap<String, Map<Long, Double>>();
    var limit = new TreeMap<Long, Double>();
    for (Measured measured : all) {
      Case row = job.cases().get(measured.index());
      long bytes = row.bytes(ranks);
      if (bytes > 0) {
        lines
            .computeIfAbsent(name(row), _ -> new TreeMap<>())
            .put(bytes, metric.of(row, measured.main().nanos()));
        if (measured.memcpyNanos() > 0) {
          limit.putIfAbsent(bytes, metric.of(row, measured.memcpyNanos()));
        }
      }
    }
    var series = new ArrayList<Series>();
    lines.forEach(
        (name, points) -> {
          int number = series.size();
          // Where colours come around again, dashes tell the lines apart.
          String dashes = number < COLOURS.size() ? "" : "8 3";
          series.add(
              new Series(name, COLOURS.get(number % COLOURS.size()), dashes, points(points)));
        });
    // Bus bandwidth counts each collective's bytes in another way: no one limit for several.
    if (!limit.isEmpty() && job.cases().stream().map(Case::collective).distinct().count() == 1) {
      series.add(new Series(LIMIT, LIMIT_COLOUR, "2 4", points(limit)));
    }
    return series;
  }

  private static List<Point> points(Map<Long, Double> values) {
    return values.entrySet().stream().map(e -> new Point(e.getKey(), e.getValue())).toList();
  }

  private static String name(Case row) {
    String schedule = row.collective() == Collective.ALL_REDUCE ? " " + row.schedule().text() : "";
    String op = row.collective().reduces() ? " " + Names.of(row.op()) : "";
    return "%s%s, %s%s".formatted(row.collective().text(), schedule, Names.of(row.type()), op);
  }

  private void legend(List<Series> series, int top) {
    for (int i = 0; i < series.size(); i++) {
      int x = 24 + i % LEGEND_COLUMNS * ((WIDTH - 24) / LEGEND_COLUMNS);
      int y = top + i / LEGEND_COLUMNS * LEGEND_ROW;
      Series one = series.get(i);
      line("<path d=\"M%d %dh28\" %s/>".formatted(x, y, stroke(one)));
      text(x + 36, y + 4, "", one.name());
    }
  }

  private void panel(int left, int top, String title, List<Series> series) {
    List<Point> points = series.stream().flatMap(one -> one.points().stream()).toList();
    if (points.isEmpty()) {
      return;
    }
    LogAxes axes = LogAxes.around(left, top, 400, 310, points);
    text(left, top - 12, "font-weight=\"bold\"", title);
    grid(axes);
    for (Series one : series) {
      curve(axes, one, title);
    }
  }

  private void grid(LogAxes axes) {
    int bottom = axes.top() + axes.height();
    for (LogAxes.Tick tick : axes.xTicks()) {
      double x = axes.x(tick.value());
      line(
          "<path d=\"M%s %dv%d\" stroke=\"#e4e4e4\"/>"
              .formatted(place(x), axes.top(), axes.height()));
      text(x, bottom + 18, "text-anchor=\"middle\"", Sizes.shortText((long) tick.value()));
    }
    for (LogAxes.Tick tick : axes.yTicks()) {
      double y = axes.y(tick.value());
      line(
          "<path d=\"M%d %sh%d\" stroke=\"%s\"/>"
              .formatted(
                  axes.left(), place(y), axes.width(), tick.minor() ? "#f3f3f3" : "#e4e4e4"));
      if (!tick.minor()) {
        text(axes.left() - 8, y + 4, "text-anchor=\"end\"", number(tick.value()));
      }
    }
    line(
        "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"#888888\"/>"
            .formatted(axes.left(), axes.top(), axes.width(), axes.height()));
    text(
        axes.left() + axes.width() / 2.0,
        bottom + 40,
        "text-anchor=\"middle\" fill=\"#555555\"",
        "size (bytes)");
  }

  private void curve(LogAxes axes, Series series, String title) {
    var path = new StringBuilder();
    for (Point point : series.points()) {
      path.append(path.isEmpty() ? "M" : "L")
          .append(x(axes, point))
          .append(' ')
          .append(place(axes.y(point.value())));
    }
    line("<path d=\"%s\" %s/>".formatted(path, stroke(series)));
    for (Point point : series.points()) {
      line(
          "<circle cx=\"%s\" cy=\"%s\" r=\"2.6\" fill=\"%s\"><title>%s: %d B, %s %s</title></circle>"
              .formatted(
                  x(axes, point),
                  place(axes.y(point.value())),
                  series.colour(),
                  escape(series.name()),
                  point.bytes(),
                  escape(title),
                  number(point.value())));
    }
  }

  private static String x(LogAxes axes, Point point) {
    return place(axes.x((double) point.bytes()));
  }

  private static String stroke(Series series) {
    String dashes =
        series.dashes().isEmpty() ? "" : " stroke-dasharray=\"%s\"".formatted(series.dashes());
    return "fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\"%s".formatted(series.colour(), dashes);
  }

  /** Three digits that count, and no zeros behind them. */
  private static String number(double value) {
    int places = (int) Math.clamp(2 - Math.floor(Math.log10(value)), 0, 6);
    String text = String.format(Locale.ROOT, "%." + places + "f", value);
    return places == 0 ? text : text.replaceAll("\\.?0+$", "");
  }

  private static String place(double coordinate) {
    return String.format(Locale.ROOT, "%.1f", coordinate);
  }

  private void text(double x, double y, String attributes, String text) {
    line(
        "<text x=\"%s\" y=\"%s\" %s>%s</text>"
            .formatted(place(x), place(y), attributes, escape(text)));
  }

  private static String escape(String text) {
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;");
  }

  private void line(String line) {
    svg.append(line).append('\n');
  }
}
