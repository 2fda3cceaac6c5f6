/**
 * What Hudi and Spark load by its name: tables keep these names in {@code hoodie.properties}, users give them as
 * options. So they never change; the work is in the other packages, none of which uses this one.
 */
package io.asynclock.hudi;
