// Package periodic has examples of periodic tasks that one of several processes runs: with robfig/cron, and
// with gocron v2.
package periodic
