// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.exchange;

import org.sparkallreduce.Backend;

/**
 * What a rank says of its GPU.
 *
 * @param setting what {@code spark.allreduce.backend} says
 * @param shared whether several ranks may use one device
 * @param build the GPU library's own description; empty if it was not loaded
 * @param uuid its device; empty if it has none
 * @param device the device for messages to people; empty if it has none
 * @param obstacle why it has a device in vain; empty if there is no reason
 */
public record GpuOffer(
    Backend setting, boolean shared, String build, String uuid, String device, String obstacle) {

  /** The longest obstacle that the message carries, in characters. */
  static final int MOST_LETTERS = 500;

  public GpuOffer {
    obstacle = cut(obstacle);
  }

  private static String cut(String text) {
    if (text.length() <= MOST_LETTERS) {
      return text;
    }
    boolean inside = Character.isHighSurrogate(text.charAt(MOST_LETTERS - 1));
    return text.substring(0, inside ? MOST_LETTERS - 1 : MOST_LETTERS);
  }

  /** Of a rank that has no GPU and wants none. */
  public static GpuOffer none(Backend setting, boolean shared) {
    return new GpuOffer(setting, shared, "", "", "", "");
  }

  /** Whether the rank's handle is that of memory on its device. */
  public boolean isReady() {
    return !uuid.isEmpty() && obstacle.isEmpty();
  }
}
