// Licensed under the Apache License, Version 2.0. See LICENSE.
package org.sparkallreduce;

import static com.tngtech.archunit.library.Architectures.layeredArchitecture;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;

import com.tngtech.archunit.core.importer.ImportOption;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import com.tngtech.archunit.lang.ArchRule;
import com.tngtech.archunit.lang.syntax.ArchRuleDefinition;

/** Dependencies point one way: dataset, communicator, exchange and ffm, vocabulary. */
@AnalyzeClasses(
    packages = "org.sparkallreduce",
    importOptions = ImportOption.DoNotIncludeTests.class)
class ArchitectureTest {
  @ArchTest
  static final ArchRule DEPENDENCIES_POINT_ONE_WAY =
      layeredArchitecture()
          .consideringOnlyDependenciesInLayers()
          .layer("vocabulary")
          .definedBy("org.sparkallreduce")
          .layer("ffm")
          .definedBy("org.sparkallreduce.ffm")
          .layer("exchange")
          .definedBy("org.sparkallreduce.exchange")
          .layer("communicator")
          .definedBy("org.sparkallreduce.communicator")
          .layer("dataset")
          .definedBy("org.sparkallreduce.dataset")
          .layer("plugin")
          .definedBy("org.sparkallreduce.plugin")
          .layer("doctor")
          .definedBy("org.sparkallreduce.doctor")
          .layer("tools")
          .definedBy("org.sparkallreduce.tools")
          .whereLayer("doctor")
          .mayNotBeAccessedByAnyLayer()
          .whereLayer("tools")
          .mayNotBeAccessedByAnyLayer()
          .whereLayer("plugin")
          .mayNotBeAccessedByAnyLayer()
          .whereLayer("dataset")
          .mayOnlyBeAccessedByLayers("plugin", "doctor", "tools")
          .whereLayer("communicator")
          .mayOnlyBeAccessedByLayers("dataset", "plugin", "doctor", "tools")
          .whereLayer("exchange")
          .mayOnlyBeAccessedByLayers("communicator", "dataset", "plugin", "doctor", "tools")
          .whereLayer("ffm")
          .mayOnlyBeAccessedByLayers("communicator", "dataset", "plugin", "doctor", "tools")
          .whereLayer("vocabulary")
          .mayOnlyBeAccessedByLayers(
              "ffm", "exchange", "communicator", "dataset", "plugin", "doctor", "tools");

  @ArchTest
  static final ArchRule PACKAGES_HAVE_NO_CYCLES =
      slices().matching("org.sparkallreduce.(*)..").should().beFreeOfCycles();

  @ArchTest
  static final ArchRule ONLY_FFM_TOUCHES_NATIVE_CODE =
      ArchRuleDefinition.noClasses()
          .that()
          .resideOutsideOfPackage("org.sparkallreduce.ffm")
          .should()
          .dependOnClassesThat()
          .haveFullyQualifiedName("java.lang.foreign.Linker")
          .orShould()
          .dependOnClassesThat()
          .haveFullyQualifiedName("java.lang.foreign.SymbolLookup");

  @ArchTest
  static final ArchRule ONLY_TOOLS_HAVE_A_COMMAND_LINE =
      ArchRuleDefinition.noClasses()
          .that()
          .resideOutsideOfPackages("org.sparkallreduce.tools..", "org.sparkallreduce.doctor..")
          .should()
          .dependOnClassesThat()
          .resideInAPackage("picocli..");

  @ArchTest
  static final ArchRule ONLY_THE_EXCHANGE_DECODES_MESSAGES =
      ArchRuleDefinition.noClasses()
          .that()
          .resideOutsideOfPackages("org.sparkallreduce.exchange", "org.sparkallreduce.plugin")
          .should()
          .dependOnClassesThat()
          .resideInAPackage("com.esotericsoftware.kryo..");
}
