// Package disk is the embedded AWS's durable journal: an engine.Journal in a
// folder, over bbolt.
//
// # Guarantees
//
// A ticket that Wait lets through is on stable storage: it survives the kill
// of the process at any instant and the loss of power (every commit is
// fsynced). The writes of one Append are all there after a crash or none, and
// the state found is one that the sequence of Append calls went through.
// One process holds the folder at a time; the kernel's file lock says so and
// ends with the process. When a commit fails (disk full, I/O error), the
// journal is poisoned: that ticket and every later one fail, so nothing is
// acknowledged that might not be there. A data file that lost its end or whose
// pages were overwritten is an error (ErrDamaged) where that is met, and ends
// no process; but bbolt has no checksums of pages, so that damage inside of a
// value may go unnoticed.
//
// # Group commit
//
// One goroutine commits. While it writes and syncs a group, Append gathers the
// next one; so a lone caller waits for one commit and many callers share one.
// A record that changes several times in a group is written once.
//
//	Append ─► open group ─► committing group ─► bbolt transaction, fsync ─► tickets
//	                Read looks here first, then in bbolt
//
// # Why bbolt
//
// Measured against Pebble v2.1 on 2 cores of a shared machine (ext4, fsync of
// about 0.1 ms; 1 KB records, updates of 10,000 keys, every group fsynced):
//
//	                                        bbolt 1.5      Pebble 2
//	1 caller, 1 record a batch              5,000-6,100/s  11,600-16,200/s
//	1 caller, 5 records                     2,400-3,700/s   7,900-11,900/s
//	16 callers, 1 record                    11,000-17,000/s 51,000-66,000/s
//	16 callers, 20 records                  2,000-2,400/s   4,500-8,200/s
//	read 100,000 records at start           0.013 s         0.12-0.16 s
//	folder after 1,000,000 updates          32 MB           20 MB
//	folder for 100 MB of bodies, 5 rounds   150-170 MB      145-170 MB
//	modules in the binary                   2               31
//	size of a minimal binary                2.0 MB          17.4 MB
//
// Pebble commits two to four times faster. bbolt is chosen all the same: it
// commits faster than a laptop's hub needs, opens at once, has no background
// compaction to disturb a test, keeps everything in one file, and costs two
// modules in place of thirty-one.
//
// bbolt keeps its freelist on disk here: writing it made no difference to the
// figures, and rebuilding it made opening four times slower.
package disk
