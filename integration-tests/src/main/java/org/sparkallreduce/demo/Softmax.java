// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.demo;

import static org.sparkallreduce.demo.Digits.CLASSES;
import static org.sparkallreduce.demo.Digits.PIXELS;

import java.util.List;

/**
 * Multinomial logistic regression in float64, by gradient descent with momentum. The two trainings
 * that the demo compares share all of this, and differ in how gradients are added up.
 */
final class Softmax {
  /** Of each class: one weight per pixel, and the bias. */
  static final int WEIGHTS = CLASSES * (PIXELS + 1);

  private static final double RATE = 0.5;
  private static final double MOMENTUM = 0.9;

  private final double[] weights = new double[WEIGHTS];
  private final double[] velocity = new double[WEIGHTS];

  double[] weights() {
    return weights;
  }

  /** One step, given the gradients' sum over {@code rows} rows. */
  void step(double[] gradient, long rows) {
    for (int i = 0; i < WEIGHTS; i++) {
      velocity[i] = MOMENTUM * velocity[i] - RATE * gradient[i] / rows;
      weights[i] += velocity[i];
    }
  }

  /** Adds the gradient of the loss of {@code row} to {@code gradient}. */
  static void addGradient(double[] weights, double[] row, double[] gradient) {
    double[] errors = probabilities(weights, row);
    errors[(int) row[PIXELS]] -= 1;
    for (int k = 0; k < CLASSES; k++) {
      int start = k * (PIXELS + 1);
      for (int i = 0; i < PIXELS; i++) {
        gradient[start + i] += errors[k] * row[i];
      }
      gradient[start + PIXELS] += errors[k];
    }
  }

  static double accuracy(double[] weights, List<double[]> rows) {
    long right =
        rows.stream()
            .filter(row -> largest(probabilities(weights, row)) == (int) row[PIXELS])
            .count();
    return (double) right / rows.size();
  }

  private static double[] probabilities(double[] weights, double[] row) {
    double[] p = new double[CLASSES];
    for (int k = 0; k < CLASSES; k++) {
      int start = k * (PIXELS + 1);
      p[k] = weights[start + PIXELS];
      for (int i = 0; i < PIXELS; i++) {
        p[k] += weights[start + i] * row[i];
      }
    }
    double most = p[largest(p)];
    double sum = 0;
    for (int k = 0; k < CLASSES; k++) {
      p[k] = Math.exp(p[k] - most);
      sum += p[k];
    }
    for (int k = 0; k < CLASSES; k++) {
      p[k] /= sum;
    }
    return p;
  }

  private static int largest(double[] values) {
    int best = 0;
    for (int k = 1; k < values.length; k++) {
      best = values[k] > values[best] ? k : best;
    }
    return best;
  }
}
