// Package archtest holds the tests of the module's shape: which package may import which, and what
// the shipped packages export.
package archtest
