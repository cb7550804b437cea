// Package vitrine holds the nouns that every other package shares: what a
// network function is made of (Component, Flavor, Sizing), what is done to it
// (Key, Outcome), what is read from it (Vantage, Use), what comes of it (Capacity,
// Measured) and what a host can do (Check). It imports the standard library only.
package vitrine
