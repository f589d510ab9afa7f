/** Results of calls. What may be expected is a value, and a failure is an exception. */
package io.dueq.model;
