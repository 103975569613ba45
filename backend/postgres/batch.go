package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/aetomala/worklease/backend"
	"github.com/aetomala/worklease/internal/prompt"
)

// RenewBatch implements [backend.BatchRenewer]. It is one statement, and a second one for all that the
// first did not renew. It waits for no lock: a row that a transaction has locked, as one from [InTx]
// does, is [backend.ErrBusy]. A context from InTx is refused.
func (b *Backend) RenewBatch(ctx context.Context, records []backend.LeaseRecord, ttl time.Duration) ([]error, error) {
	sent, places := distinct(records)
	verdicts := make([]error, len(sent))
	err := b.promptly(ctx, renewBatchQuery.name, outsideTx(func(ctx context.Context) error {
		if len(sent) == 0 {
			return nil
		}
		letters, err := b.letters(ctx, renewBatchQuery, len(sent), append(identities(sent), microseconds(ttl))...)
		if err != nil {
			return err
		}
		for i, letter := range letters {
			verdicts[i] = overOnArrival(letter == '+', ttl)
		}
		b.explain(ctx, sent, letters, verdicts)
		b.queues.close(answered(sent, verdicts)...) // their rows' locks could be had
		return nil
	}), nil)
	if err != nil {
		return nil, err
	}
	answers := make([]error, len(records))
	for i, place := range places {
		answers[i] = verdicts[place]
	}
	return answers, nil
}

// explain sets the verdicts on those of records that the letters of a renewBatchQuery say were not
// renewed. What was renewed stays so if that fails.
func (b *Backend) explain(ctx context.Context, records []backend.LeaseRecord, renewed string, verdicts []error) {
	var (
		rest   []backend.LeaseRecord
		places []int
	)
	for i, letter := range renewed {
		if letter == '*' || letter == '-' {
			rest, places = append(rest, records[i]), append(places, i)
		}
	}
	if len(rest) == 0 {
		return
	}
	letters, err := b.letters(ctx, batchVerdictQuery, len(rest), identities(rest)...)
	if err != nil {
		err = failed(ctx, renewBatchQuery.name, b.cured(ctx, renewBatchQuery.name, err))
	}
	for i, place := range places {
		switch {
		case err != nil:
			verdicts[place] = err
		case letters[i] == 'f':
			verdicts[place] = backend.ErrFenced
		case letters[i] == 'e', letters[i] == 'o' && renewed[place] == '*':
			verdicts[place] = backend.ErrLeaseExpired
		default: // held, or locked by somebody who may be about to revive it
			verdicts[place] = backend.ErrBusy
		}
	}
}

// answered returns the tokens of the records that have a verdict, which a busy one has not.
func answered(records []backend.LeaseRecord, verdicts []error) (tokens []uint64) {
	for i, record := range records {
		if verdicts[i] == nil || prompt.IsAnswer(verdicts[i]) {
			tokens = append(tokens, record.FencingToken)
		}
	}
	return tokens
}

// letters runs a query that answers with one letter for each of n.
func (b *Backend) letters(ctx context.Context, q query, n int, args ...any) (letters string, err error) {
	err = b.only(ctx, q, args, &letters)
	if err == nil && len(letters) != n {
		err = fmt.Errorf("%d answers to %d questions", len(letters), n)
	}
	return letters, err
}

// distinct returns records without those that occur before, and where each of records is among them.
func distinct(records []backend.LeaseRecord) (sent []backend.LeaseRecord, places []int) {
	places = make([]int, len(records))
	known := make(map[backend.LeaseRecord]int, len(records))
	for i, record := range records {
		record.ExpiresAt = time.Time{} // says nothing of the tenure
		place, found := known[record]
		if !found {
			place = len(sent)
			known[record] = place
			sent = append(sent, record)
		}
		places[i] = place
	}
	return sent, places
}

// identities is identity for many: three arrays.
func identities(records []backend.LeaseRecord) []any {
	workIDs, holderIDs := make([]string, len(records)), make([]string, len(records))
	tokens := make([]int64, len(records))
	for i, record := range records {
		workIDs[i], holderIDs[i], tokens[i] = record.WorkID, record.HolderID, token(record)
	}
	return []any{textArray(workIDs), textArray(holderIDs), intArray(tokens)}
}
