// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce.tools;

/** The run could not be brought to its end; the message says why, to the user. */
final class ToolException extends RuntimeException {
  ToolException(String message) {
    super(message);
  }
}
