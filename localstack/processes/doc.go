// Package processes starts and ends processes beside this one: in groups and with
// signals where the system has them, and as well as it goes where it has not
// (Windows).
package processes
