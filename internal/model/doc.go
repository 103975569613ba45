// Package model is the contract of [backend.Backend] once more, as a small pure program to compare
// stores with.
//
// [Row] is the specification: each operation is a method that takes the time and a row, and returns the
// row after it and the error. Nothing is shared and nothing waits. A [Store] is a row for each work ID, a
// clock, and the tokens given out so far. A [Runner] applies one [Op] after another to a real store and
// to the model, and reports whatever differs: the result, the class of the error, or a row. [Generate]
// makes operations that lead to the corners of the contract: to the very instant of an expiry or of a
// retention, to tenures that are over, to records that are nobody's.
//
// Tokens are compared by their order. A token of the model is the rank of an acquisition: the first that
// succeeds has 1, the next 2. A store may draw any numbers above zero as long as they rise.
//
// Only tests import this package.
package model
