package postgres

import "context"

// Free implements [backend.Looker]. It takes no lock, and refuses a context from [InTx].
func (b *Backend) Free(ctx context.Context, workIDs []string) ([]string, error) {
	var letters string
	asked := textArray(workIDs)
	err := b.promptly(ctx, freeQuery.name, outsideTx(func(ctx context.Context) (err error) {
		if len(workIDs) > 0 {
			letters, err = b.letters(ctx, freeQuery, len(workIDs), asked)
		}
		return err
	}), nil)
	if err != nil {
		return nil, err
	}
	var free []string
	for i, letter := range letters {
		if letter == 'f' {
			free = append(free, workIDs[i])
		}
	}
	return free, nil
}
