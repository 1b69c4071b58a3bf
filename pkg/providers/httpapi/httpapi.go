// Package httpapi is what the clients of models behind an HTTP API have in
// common, whichever API it is: their configuration, the way there and back, when to try
// again, what a failure means, tools and calls as such APIs want them, and the
// values of options. What only one API does is in its adapter.
package httpapi
