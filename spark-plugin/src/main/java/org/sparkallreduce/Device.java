// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

/**
 * A GPU, as the driver shows it to this process.
 *
 * @param index the driver's number in this process: what {@code cudaSetDevice} or {@code
 *     hipSetDevice} takes
 * @param vendor who made it
 * @param name the product
 * @param uuid {@code GPU-...}, the same in every process
 * @param busId its place on the PCI bus
 * @param memoryBytes all of its memory
 * @param driverVersion as the vendor's driver counts
 */
public record Device(
    int index,
    Vendor vendor,
    String name,
    String uuid,
    String busId,
    long memoryBytes,
    int driverVersion) {

  /** Whose driver the device has. */
  public enum Vendor {
    NVIDIA(0),
    AMD(1);

    private final int code;

    Vendor(int code) {
      this.code = code;
    }

    /** How native code names it. */
    public int code() {
      return code;
    }
  }

  /** How messages to people name this device. */
  public String describe() {
    return "%s %s at %s".formatted(name, uuid, busId);
  }
}
