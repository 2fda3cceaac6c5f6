/**
 * The classes that Hudi and Spark load by name. Tables keep these names in {@code hoodie.properties}, and users give
 * them as options, so they never change. The work is in the other packages, none of which uses this one.
 */
package io.asynclock.hudi;
