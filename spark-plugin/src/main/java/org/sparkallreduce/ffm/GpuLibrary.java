// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.ffm;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import org.sparkallreduce.AllReduceException;
import org.sparkallreduce.Device;

/**
 * The GPU library, bound. It loads on any machine; the vendor's driver is looked for by the first
 * call that needs it. Thread safe.
 */
public final class GpuLibrary {
  /**
   * Another build of the library, for the simulated driver of the tests, whose blocks are smaller
   * than a GPU's. The driver itself is named by SPARK_ALLREDUCE_GPU_DRIVER.
   */
  private static final String OTHER_LIBRARY = "SPARK_ALLREDUCE_GPU_LIBRARY";

  private final NativeLibrary library;
  private final GpuFunctions functions;

  private GpuLibrary(NativeLibrary library, GpuFunctions functions) {
    this.library = library;
    this.functions = functions;
  }

  /**
   * Unpacks the library from the jar, loads and binds it.
   *
   * @param directory where to unpack it; empty: the JVM's temporary folder
   * @throws AllReduceException.Setup if it cannot be loaded here; the message says why and what to
   *     do
   */
  public static GpuLibrary load(Optional<String> directory) {
    String other = System.getenv(OTHER_LIBRARY);
    SymbolLookup symbols =
        other == null
            ? NativeLoader.load(NativeLoader.GPU, directory)
            : NativeLoader.open(Path.of(other));
    NativeLibrary library = NativeLibrary.bind(symbols);
    return new GpuLibrary(library, GpuFunctions.bind(symbols));
  }

  /** Version, backend and device code of the library, on one line. */
  public String buildInfo() {
    return library.buildInfo();
  }

  /**
   * The devices that the driver shows to this process, in its order. No device memory is taken.
   *
   * @throws NativeFailure if there is no driver, or it does not start
   */
  public List<Device> devices() throws NativeFailure {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment count = arena.allocate(JAVA_INT);
      require((int) functions.deviceCount().invokeExact(count));
      MemorySegment facts = arena.allocate(Abi.GPU_FACTS);
      var devices = new ArrayList<Device>();
      for (int index = 0; index < count.get(JAVA_INT, 0); index++) {
        require((int) functions.deviceFacts().invokeExact(index, facts));
        devices.add(device(index, facts));
      }
      return List.copyOf(devices);
    } catch (NativeFailure e) {
      throw e;
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  private static Device device(int index, MemorySegment facts) {
    int vendor = (int) Abi.field(Abi.GPU_FACTS, "vendor").get(facts, 0L);
    return new Device(
        index,
        vendor == Device.Vendor.AMD.code() ? Device.Vendor.AMD : Device.Vendor.NVIDIA,
        text(facts, "name"),
        text(facts, "uuid"),
        text(facts, "bus_id"),
        (long) Abi.field(Abi.GPU_FACTS, "memory_bytes").get(facts, 0L),
        (int) Abi.field(Abi.GPU_FACTS, "driver_version").get(facts, 0L));
  }

  private static String text(MemorySegment facts, String field) {
    return facts
        .asSlice(Abi.GPU_FACTS.byteOffset(PathElement.groupElement(field)))
        .getString(0)
        .strip();
  }

  /**
   * Bytes of the device's memory that nobody uses: whether an arena fits, whether all came back.
   */
  public long freeMemory(int device) throws NativeFailure {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment bytes = arena.allocate(JAVA_LONG);
      require((int) functions.freeMemory().invokeExact(device, bytes));
      return bytes.get(JAVA_LONG, 0);
    } catch (NativeFailure e) {
      throw e;
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
  }

  /** Creates a rank's part on a device. */
  public NativeCommunicator create(int device, NativeCommunicator.Options options)
      throws NativeFailure {
    try {
      require((int) functions.selectDevice().invokeExact(device)); // for this thread
    } catch (NativeFailure e) {
      throw e;
    } catch (Throwable t) {
      throw NativeLibrary.unexpected(t);
    }
    return NativeCommunicator.create(library, options);
  }

  /** What only a communicator that this library created can do. */
  public NativeDevice device(NativeCommunicator comm) {
    return new NativeDevice(functions, comm);
  }

  private void require(int status) throws NativeFailure {
    if (Status.of(status) != Status.OK) {
      throw new NativeFailure(library.lastFailure());
    }
  }
}
