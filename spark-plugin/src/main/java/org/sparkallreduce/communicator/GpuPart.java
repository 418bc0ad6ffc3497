// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.communicator;

import java.util.List;
import java.util.Optional;
import org.jspecify.annotations.Nullable;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Device;
import org.sparkallreduce.Settings;
import org.sparkallreduce.exchange.GpuOffer;
import org.sparkallreduce.ffm.GpuLibrary;
import org.sparkallreduce.ffm.NativeCommunicator;
import org.sparkallreduce.ffm.NativeFailure;

/**
 * A rank's part on its GPU, created before the ranks choose a backend, or the reason why there is
 * none. A rank to which Spark has assigned no GPU loads nothing, unless the GPU is demanded.
 *
 * @param offer what the rank tells the others
 * @param ready the part
 */
record GpuPart(GpuOffer offer, Optional<Ready> ready) {
  /**
   * A part whose memory is on a device.
   *
   * @param comm owned by whoever takes the part
   */
  record Ready(GpuLibrary library, Device device, NativeCommunicator comm) {}

  /** The library of this process: it and its driver are loaded once. */
  private static @Nullable GpuLibrary loaded;

  static synchronized GpuLibrary library(Settings settings) {
    if (loaded == null) {
      loaded = GpuLibrary.load(settings.nativeDirectory());
    }
    return loaded;
  }

  /** Whether this process has had to do with GPUs. */
  static synchronized boolean isLoaded() {
    return loaded != null;
  }

  static GpuPart prepare(
      Settings settings, RankIdentity identity, NativeCommunicator.Options options) {
    boolean wanted =
        switch (settings.backend()) {
          case HOST -> false;
          case AUTO -> identity.device().isPresent();
          case GPU -> true;
        };
    if (!wanted) {
      return new GpuPart(GpuOffer.none(settings.backend(), settings.gpuShared()), Optional.empty());
    }
    String build = "";
    Optional<Device> device = Optional.empty();
    try {
      GpuLibrary library = library(settings);
      build = library.buildInfo();
      device = Optional.of(device(library.devices(), identity));
      NativeCommunicator comm = library.create(device.get().index(), options);
      return new GpuPart(
          offer(settings, build, device, ""), Optional.of(new Ready(library, device.get(), comm)));
    } catch (AllReduceException e) {
      return without(settings, build, device, String.valueOf(e.getMessage()));
    } catch (NativeFailure e) {
      return without(settings, build, device, e.failure().message());
    }
  }

  /** The one that Spark has assigned; where it assigns none, as in local mode, by rank. */
  private static Device device(List<Device> devices, RankIdentity identity) {
    String address =
        identity
            .device()
            .orElseGet(
                () ->
                    devices.isEmpty()
                        ? Integer.toString(identity.rank())
                        : devices.get(identity.rank() % devices.size()).uuid());
    return DeviceAddress.find(address, devices, System.getenv());
  }

  private static GpuPart without(
      Settings settings, String build, Optional<Device> device, String why) {
    return new GpuPart(offer(settings, build, device, why), Optional.empty());
  }

  private static GpuOffer offer(
      Settings settings, String build, Optional<Device> device, String obstacle) {
    return new GpuOffer(
        settings.backend(),
        settings.gpuShared(),
        build,
        device.map(Device::uuid).orElse(""),
        device.map(Device::describe).orElse(""),
        obstacle);
  }
}
