package conformance

import (
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"

	"github.com/aetomala/worklease/backend"
)

// free checks which of asked Free returns.
func (p *probe) free(asked, want []string) {
	ginkgo.GinkgoHelper()
	found, err := capability[backend.Looker](p).Free(p.ctx, asked)
	p.Expect(tried(err)).NotTo(gomega.HaveOccurred(), "Free")
	p.Expect(append([]string{}, found...)).To(gomega.Equal(append([]string{}, want...)), "the free ones of %q", asked)
}

func (s suite) looks() {
	for _, r := range rowStates {
		verdict, want := "held", []string{}
		if r.acquire.want == nil {
			verdict, want = "free", []string{work}
		}
		able(s, "find "+r.name+" "+verdict, lookFree, func(p *probe, _ backend.Looker) {
			row := r.setUp(p)
			p.free([]string{work}, want)
			p.unchanged(row)
		})
	}

	able(s, "keep to the order of the question", lookOrder, func(p *probe, _ backend.Looker) {
		p.acquire("b", "me", over)
		p.release(p.acquire("e", "me", hour), backend.ExitRetired)
		for _, workID := range []string{"a", "d"} {
			p.acquire(workID, "me", hour)
		}
		p.free([]string{"e", "d", "c", "b", "a", "c", "d", "e"}, []string{"e", "c", "b", "c", "e"})
	})

	able(s, "for nothing find nothing", lookOrder, func(p *probe, _ backend.Looker) {
		p.free(nil, nil)
		p.free([]string{}, nil)
	})

	able(s, "tell IDs apart", idsExact, func(p *probe, _ backend.Looker) {
		var want []string
		for i, id := range unlikeIDs {
			if i%2 == 0 {
				p.acquire(id, "me", hour)
			} else {
				want = append(want, id)
			}
		}
		p.free(unlikeIDs, want)
	})
}
