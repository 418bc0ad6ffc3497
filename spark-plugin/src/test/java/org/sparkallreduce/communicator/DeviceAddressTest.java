// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Device;
import org.sparkallreduce.Device.Vendor;

class DeviceAddressTest {
  private static Device device(int index, Vendor vendor, String uuid, String busId) {
    return new Device(index, vendor, "a GPU", uuid, busId, 1L << 30, 1);
  }

  private static List<Device> two(Vendor vendor) {
    return List.of(
        device(0, vendor, "GPU-aaaa", "0000:83:00.0"),
        device(1, vendor, "GPU-bbbb", "0000:21:00.0"));
  }

  private static int find(String address, Vendor vendor, Map<String, String> environment) {
    return DeviceAddress.find(address, two(vendor), environment).index();
  }

  @Test
  void aNumberCountsTheDevicesInTheOrderOfThePciBus() {
    assertThat(find("0", Vendor.NVIDIA, Map.of())).isEqualTo(1);
    assertThat(find("1", Vendor.NVIDIA, Map.of())).isEqualTo(0);
  }

  @Test
  void anIdentityNamesTheDeviceThatHasIt() {
    assertThat(find("GPU-BBBB", Vendor.NVIDIA, Map.of())).isEqualTo(1);
    assertThat(find("0000:83:00.0", Vendor.AMD, Map.of())).isEqualTo(0);
  }

  @Test
  void aNumberIsLookedUpInTheVariableThatShowsSomeDevicesOnly() {
    assertThat(find("5", Vendor.NVIDIA, Map.of("CUDA_VISIBLE_DEVICES", "7, 5"))).isEqualTo(1);
    assertThat(find("7", Vendor.NVIDIA, Map.of("CUDA_VISIBLE_DEVICES", "7,5"))).isEqualTo(0);
    assertThat(find("6", Vendor.AMD, Map.of("HIP_VISIBLE_DEVICES", "4,6"))).isEqualTo(1);
  }

  @Test
  void onAmdOneVariableCountsWhatTheOtherLeaves() {
    var both = Map.of("ROCR_VISIBLE_DEVICES", "2,4,6", "HIP_VISIBLE_DEVICES", "2,1");
    assertThat(find("6", Vendor.AMD, both)).isEqualTo(0);
    assertThat(find("4", Vendor.AMD, both)).isEqualTo(1);
  }

  @Test
  void aVariableOfTheOtherVendorHidesNothing() {
    assertThat(find("0", Vendor.NVIDIA, Map.of("HIP_VISIBLE_DEVICES", "3"))).isEqualTo(1);
  }

  @Test
  void aHiddenDeviceIsNamedWithTheVariable() {
    assertThatThrownBy(() -> find("1", Vendor.NVIDIA, Map.of("CUDA_VISIBLE_DEVICES", "2,3")))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("assigned GPU 1, but CUDA_VISIBLE_DEVICES=2,3");
  }

  @Test
  void aDeviceThatTheDriverDoesNotHaveIsNamedWithThoseThatItHas() {
    assertThatThrownBy(() -> find("2", Vendor.NVIDIA, Map.of()))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("assigned GPU 2")
        .hasMessageContaining("GPU-aaaa");
    assertThatThrownBy(() -> find("GPU-cccc", Vendor.NVIDIA, Map.of()))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("assigned the GPU 'GPU-cccc'");
    assertThatThrownBy(() -> DeviceAddress.find("0", List.of(), Map.of()))
        .isInstanceOf(AllReduceException.Setup.class)
        .hasMessageContaining("shows no device");
  }

  @Test
  void anAddressThatNamesNothingIsAnErrorThatQuotesIt() {
    for (String address : List.of("", " ", "0,1", "123456", "GPU-cccc")) {
      assertThatThrownBy(() -> find(address, Vendor.NVIDIA, Map.of()))
          .isInstanceOf(AllReduceException.Setup.class)
          .hasMessageContaining("assigned the GPU '" + address + "', but the driver shows only")
          .hasMessageContaining("GPU-aaaa");
    }
  }
}
