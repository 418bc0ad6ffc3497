// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.within;

import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.stream.IntStream;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.tools.Job.Placement;
import org.sparkallreduce.tools.PerfSvg.Point;
import org.w3c.dom.Element;

class PerfSvgTest {
  private static final Job JOB =
      new Job(
          List.of(PerfFixture.allReduce(8, 10), PerfFixture.allReduce(1 << 20, 10)),
          Placement.BOTH,
          true,
          1,
          true,
          true);

  private final Element svg = parse(draw(JOB, PerfFixture.ALL.subList(0, 2)));

  private static String draw(Job job, List<Measured> all) {
    return PerfSvg.draw(PerfFixture.INFO, job, 2, all);
  }

  /** Fails if it is not well-formed. */
  private static Element parse(String text) {
    try {
      return DocumentBuilderFactory.newInstance()
          .newDocumentBuilder()
          .parse(new ByteArrayInputStream(text.getBytes(StandardCharsets.UTF_8)))
          .getDocumentElement();
    } catch (Exception e) {
      throw new AssertionError(text, e);
    }
  }

  private List<Element> elements(String name) {
    var nodes = svg.getElementsByTagName(name);
    return IntStream.range(0, nodes.getLength()).mapToObj(i -> (Element) nodes.item(i)).toList();
  }

  @Test
  void everyValueIsDrawnAtItsPlaceWithItsText() {
    assertThat(elements("circle"))
        .extracting(Element::getTextContent)
        .containsExactly(
            "all-reduce one-shot, float sum: 8 B, time per call (us) 0.5",
            "all-reduce one-shot, float sum: 1048576 B, time per call (us) 100",
            "limit: memcpy on all ranks at once: 8 B, time per call (us) 0.01",
            "limit: memcpy on all ranks at once: 1048576 B, time per call (us) 50",
            "all-reduce one-shot, float sum: 8 B, bus bandwidth (GB/s) 0.016",
            "all-reduce one-shot, float sum: 1048576 B, bus bandwidth (GB/s) 10.5",
            "limit: memcpy on all ranks at once: 8 B, bus bandwidth (GB/s) 0.8",
            "limit: memcpy on all ranks at once: 1048576 B, bus bandwidth (GB/s) 21");
    // Times are drawn from 0.01 to 100: half of a time's logarithm is half of the height.
    assertThat(number("circle", 2, "cy") - number("circle", 0, "cy"))
        .isEqualTo(310 * Math.log10(50) / 4, within(0.2));
    assertThat(number("circle", 1, "cx") - number("circle", 0, "cx")).isEqualTo(400, within(0.2));
  }

  private double number(String name, int index, String attribute) {
    return Double.parseDouble(elements(name).get(index).getAttribute(attribute));
  }

  @Test
  void theLegendNamesEveryLineOnce() {
    assertThat(elements("text"))
        .extracting(Element::getTextContent)
        .contains("all-reduce on 2 ranks, host backend", "size (bytes)")
        .containsOnlyOnce("all-reduce one-shot, float sum", "limit: memcpy on all ranks at once")
        .anyMatch(text -> text.contains("Some <CPU>"));
  }

  @Test
  void aRunOfOneSizeOrOfNoBytesIsDrawnToo() {
    var one = new Job(List.of(PerfFixture.allReduce(64, 1)), Placement.BOTH, true, 1, false, false);
    var none = new Job(List.of(PerfFixture.allReduce(0, 1)), Placement.BOTH, true, 1, false, false);
    for (Job job : List.of(one, none)) {
      String text = draw(job, List.of(new Measured(0, new Timing(500, 0), null, 0)));
      assertThat(text).doesNotContain("NaN", "Infinity");
      assertThat(parse(text).getTagName()).isEqualTo("svg");
    }
  }

  @Test
  void axesAreLogarithmicWithFewMarks() {
    var axes =
        LogAxes.around(100, 10, 400, 300, List.of(new Point(8, 0.3), new Point(1 << 26, 4_000)));
    assertThat(axes.x(8)).isEqualTo(100);
    assertThat(axes.x(1 << 26)).isEqualTo(500);
    assertThat(axes.x(8 * Math.sqrt((1 << 26) / 8.0))).isEqualTo(300, within(1e-6));
    assertThat(axes.y(axes.leastY())).isEqualTo(310);
    assertThat(axes.y(axes.mostY())).isEqualTo(10, within(1e-6));
    assertThat(axes.leastY()).isEqualTo(0.2);
    assertThat(axes.mostY()).isEqualTo(5_000);
    assertThat(axes.xTicks()).hasSizeBetween(5, 9);
    assertThat(axes.yTicks())
        .extracting(LogAxes.Tick::value)
        .contains(1.0, 10.0, 100.0, 1_000.0)
        .allSatisfy(value -> assertThat(value).isBetween(0.199, 5_001.0));
  }
}
