// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Device;

/**
 * Which of the devices that the driver shows is meant by an address of Spark's resource {@code
 * gpu}. An address is what a discovery script prints:
 *
 * <ul>
 *   <li>a UUID ({@code GPU-...}) or a PCI bus id names the device that has it;
 *   <li>a number is the machine's, as nvidia-smi, amd-smi and rocm-smi count: in the order of the
 *       PCI bus. Where a variable shows only some devices to this process (CUDA_VISIBLE_DEVICES for
 *       NVIDIA; ROCR_VISIBLE_DEVICES, and then HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES, for
 *       AMD), the driver numbers anew what is left, in the variable's order: so the number's place
 *       in the variable is the driver's number.
 * </ul>
 */
final class DeviceAddress {
  private DeviceAddress() {}

  /**
   * The device of that address.
   *
   * @throws AllReduceException.Setup if the driver shows no such device to this process
   */
  static Device find(String address, List<Device> devices, Map<String, String> environment) {
    if (devices.isEmpty()) {
      throw new AllReduceException.Setup(
          "The GPU driver shows no device to this process; look at the *_VISIBLE_DEVICES variables"
              + " of its environment, and at the devices of its container.");
    }
    if (address.matches("[0-9]{1,5}")) {
      return byNumber(Integer.parseInt(address), devices, environment);
    }
    return devices.stream()
        .filter(device -> names(address, device))
        .findFirst()
        .orElseThrow(
            () ->
                new AllReduceException.Setup(
                    "Spark has assigned the GPU '%s', but the driver shows only %s to this process."
                            .formatted(address, list(devices))
                        + " Let the discovery script print what this process sees."));
  }

  private static boolean names(String address, Device device) {
    // A part of a device has a UUID with another prefix, which only the vendor's tools know.
    return withoutPrefix(address).equalsIgnoreCase(withoutPrefix(device.uuid()))
        || address.equalsIgnoreCase(device.busId());
  }

  private static String withoutPrefix(String uuid) {
    return uuid.startsWith("GPU-") || uuid.startsWith("MIG-") ? uuid.substring(4) : uuid;
  }

  private static Device byNumber(
      int number, List<Device> devices, Map<String, String> environment) {
    List<String> filters =
        filters(devices.getFirst().vendor(), environment.keySet().stream().toList());
    int place = number;
    for (String filter : filters) {
      String list = environment.get(filter);
      place = Arrays.asList(list.strip().split("\\s*,\\s*", -1)).indexOf(Integer.toString(place));
      if (place < 0) {
        throw new AllReduceException.Setup(
            "Spark has assigned GPU %d, but %s=%s does not show it to this process. Let the variable"
                    .formatted(number, filter, list)
                + " list the numbers that Spark assigns, or let the discovery script print UUIDs.");
      }
    }
    List<Device> order = new ArrayList<>(devices);
    if (filters.isEmpty()) {
      order.sort(Comparator.comparing(Device::busId)); // CUDA may count the fastest first
    }
    if (place >= order.size()) {
      throw new AllReduceException.Setup(
          "Spark has assigned GPU %d, but the driver shows only %s to this process. Look at the"
                  .formatted(number, list(devices))
              + " devices of its container, and at the addresses of the resource gpu.");
    }
    return order.get(place);
  }

  /** The variables that are set, in the order in which the vendor's libraries apply them. */
  private static List<String> filters(Device.Vendor vendor, List<String> set) {
    String last =
        set.contains("HIP_VISIBLE_DEVICES") ? "HIP_VISIBLE_DEVICES" : "CUDA_VISIBLE_DEVICES";
    List<String> all =
        switch (vendor) {
          case NVIDIA -> List.of("CUDA_VISIBLE_DEVICES");
          case AMD -> List.of("ROCR_VISIBLE_DEVICES", last);
        };
    return all.stream().filter(set::contains).toList();
  }

  private static String list(List<Device> devices) {
    return devices.stream().map(Device::describe).collect(Collectors.joining(", "));
  }
}
