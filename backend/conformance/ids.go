package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

// unlikeIDs are IDs that a store may confuse with one another: by a collation, by trimming, by
// normalising, by pattern matching, by joining keys, or by cutting what is long.
var unlikeIDs = func() []string {
	long := strings.Repeat("x", 1023)
	ids := []string{
		"work", "Work", "WORK", " work", "work ", "work  ", "work\t", "work\n", "wo rk",
		"caf\u00e9", "cafe\u0301", "cafe", // composed, decomposed, and without the accent
		"stra\u00dfe", "strasse", "\u0130", "i", "\u0131", "I", // what folding case confuses
		"\u212a", "K", "\ufb01", "fi", // what compatibility forms confuse
		"\u200bwork", "\ufeffwork", "日本語", "🚀", "👩\u200d🚀",
		"a/b", "a//b", "a/b/", "../a", "{a}", "{a}:b", "a:{b}", "a.b", "a.*", "a.>", "*", ">", "a*", "a?", "[a]",
		"%", "a%", "_", "a_", "ab", "'", "''", `"`, `\`, `\\`, `\'`, "`", "$1", "?", ";--", "#", "&", "|",
		"\x01", "\x7f", "0", "00", "0.0", "1e3", "1000", "null", "NULL", "true", "-1",
		long + "a", long + "b", long, strings.Repeat("é", 512), strings.Repeat("🚀", 256),
	}
	for _, odd := range `/{}*.>%_'"\` {
		ids = append(ids, fmt.Sprintf("a%cz", odd), fmt.Sprintf("%[1]ca%[1]c", odd))
	}
	return ids
}()

func (s suite) ids() {
	s.it("of work are told apart", idsExact, func(p *probe) {
		var records []backend.LeaseRecord
		for _, id := range unlikeIDs {
			record := p.acquire(id, "me", hour)
			p.checkpoint(record, "state of "+id, hour)
			records = append(records, record)
		}
		for i, record := range records {
			if i%2 == 0 {
				p.forget(record)
			}
		}
		for i, record := range records {
			if i%2 == 0 {
				p.fenced(record)
			} else {
				p.reads(record, backend.Checkpoint{State: []byte("state of " + record.WorkID)})
			}
		}
	})

	s.it("of work that differ only in the last of 1,024 bytes are told apart", idsExact, func(p *probe) {
		long := strings.Repeat("x", 1023)
		a, b := p.acquire(long+"a", "me", hour), p.acquire(long+"b", "me", hour)
		p.forget(a)
		p.fenced(a)
		p.reads(b, backend.Checkpoint{})
	})

	s.it("of holders are told apart", idsExact, func(p *probe) {
		for i, id := range unlikeIDs {
			impostor := p.acquire(work, id, hour)
			mine := impostor
			for _, other := range lookalikes(id, unlikeIDs[(i+1)%len(unlikeIDs)]) {
				impostor.HolderID = other
				p.refused(p.store.Renew(p.ctx, impostor, over), backend.ErrFenced)
			}
			p.forget(mine)
		}
	})

	s.it("of holders come back as they were given", idsExact, func(p *probe) {
		for _, id := range unlikeIDs {
			mine := p.acquire(work, id, hour)
			if held, ok := p.heldError(work, "next"); ok {
				p.Expect(held.HolderID).To(gomega.Equal(id))
			}
			p.release(mine, backend.ExitFinished)
			p.forget(p.finds(work, backend.Checkpoint{PrevExit: backend.ExitFinished, PrevHolderID: id}))
		}
	})

	s.it("of holders that look like no ID are told apart", idsExact, func(p *probe) {
		mine := p.acquire(work, "me", hour)
		for _, other := range []string{"", " me", "me ", "Me", "ME", "m", "mee", "m_", "m%", "*", "%"} {
			mine.HolderID = other
			p.refusesAll(mine)
		}
	})
}

// lookalikes returns neighbour and what a careless store takes for id, without id itself.
func lookalikes(id, neighbour string) []string {
	candidates := []string{
		neighbour,
		strings.ToLower(id), strings.ToUpper(id), strings.TrimSpace(id), id + " ",
		strings.ToValidUTF8(id[:min(len(id), 255)], ""),
	}
	return slices.DeleteFunc(candidates, func(other string) bool { return other == id })
}
