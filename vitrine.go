// Package vitrine holds the nouns that every other package shares. They name
// what a network function is made of (Component, Flavor, Sizing), a trial of it
// (Key, Outcome), what the function uses (Vantage, Use), what it carries
// (Capacity, Measured, Profile), an instance that serves transactions (Instance,
// State), and what a host can do (Check). The package imports the standard
// library only.
package vitrine
