// Functions without a body, such as those of burst.go, need a file of assembly
// beside them.
