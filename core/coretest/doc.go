// Package coretest is the conformance suite of core's store ports: what a hub
// over any adapter must do, with races, lost responses and delayed duplicates.
// An adapter's test opens empty stores and calls Run. Model is the simplest
// store that passes; comparing an adapter with it finds what the cases do not.
package coretest
