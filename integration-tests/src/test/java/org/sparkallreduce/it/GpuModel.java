// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.it;

import java.util.Arrays;
import java.util.SplittableRandom;
import org.sparkallreduce.DataType;
import org.sparkallreduce.ReduceOp;
import org.sparkallreduce.communicator.Communicator;
import org.sparkallreduce.communicator.Graph;
import org.sparkallreduce.communicator.RegisteredBuffer;

/**
 * A small model whose gradients are all-reduced in registered buffers, as float32 or as bfloat16:
 * logistic regression on points that a plane separates. Each rank has points of its own.
 */
final class GpuModel {
  private static final int INPUTS = 50;
  private static final int POINTS = 200; // of each rank
  private static final int STEPS = 40;
  private static final float RATE = 4;

  private final float[][] points = new float[POINTS][INPUTS];
  private final boolean[] above = new boolean[POINTS];
  private final float[] weights = new float[INPUTS];

  private GpuModel(int rank) {
    var random = new SplittableRandom(rank);
    for (int p = 0; p < POINTS; p++) {
      float side = 0;
      for (int i = 0; i < INPUTS; i++) {
        points[p][i] = (float) random.nextDouble(-1, 1);
        side += points[p][i] * (i % 3 - 1);
      }
      above[p] = side > 0;
    }
  }

  /**
   * Trains on this rank's points and the others'.
   *
   * @param captured whether the all-reduce is captured once and replayed, or called in each step
   * @return the weights, and then the share of this rank's points that they put on the right side
   */
  static float[] train(Communicator communicator, DataType type, boolean captured) {
    var model = new GpuModel(communicator.rank());
    RegisteredBuffer mine = communicator.allocate(type, INPUTS);
    RegisteredBuffer sum = communicator.allocate(type, INPUTS);
    Runnable step = () -> communicator.allReduce(mine, sum, ReduceOp.AVERAGE);
    try (Graph graph = captured ? communicator.capture(step) : null) {
      for (int i = 0; i < STEPS; i++) {
        put(model.gradient(), mine);
        if (graph == null) {
          step.run();
        } else {
          graph.replay();
        }
        model.update(get(sum));
      }
      communicator.waitFor();
    }
    return model.result();
  }

  private float[] gradient() {
    float[] gradient = new float[INPUTS];
    for (int p = 0; p < POINTS; p++) {
      float error = (float) (1 / (1 + Math.exp(-side(p)))) - (above[p] ? 1 : 0);
      for (int i = 0; i < INPUTS; i++) {
        gradient[i] += error * points[p][i] / POINTS;
      }
    }
    return gradient;
  }

  private void update(float[] gradient) {
    for (int i = 0; i < INPUTS; i++) {
      weights[i] -= RATE * gradient[i];
    }
  }

  private float side(int point) {
    float side = 0;
    for (int i = 0; i < INPUTS; i++) {
      side += weights[i] * points[point][i];
    }
    return side;
  }

  private float[] result() {
    int right = 0;
    for (int p = 0; p < POINTS; p++) {
      right += side(p) > 0 == above[p] ? 1 : 0;
    }
    float[] result = Arrays.copyOf(weights, INPUTS + 1);
    result[INPUTS] = (float) right / POINTS;
    return result;
  }

  private static void put(float[] values, RegisteredBuffer buffer) {
    if (buffer.type() == DataType.FLOAT32) {
      buffer.copyFrom(values);
      return;
    }
    short[] bits = new short[values.length];
    for (int i = 0; i < bits.length; i++) {
      int all = Float.floatToIntBits(values[i]);
      bits[i] = (short) ((all + 0x7fff + (all >>> 16 & 1)) >>> 16); // to nearest, ties to even
    }
    buffer.copyFrom(bits);
  }

  private static float[] get(RegisteredBuffer buffer) {
    float[] values = new float[(int) buffer.count()];
    if (buffer.type() == DataType.FLOAT32) {
      buffer.copyTo(values);
      return values;
    }
    short[] bits = new short[values.length];
    buffer.copyTo(bits);
    for (int i = 0; i < bits.length; i++) {
      values[i] = Float.intBitsToFloat(bits[i] << 16);
    }
    return values;
  }
}
