//! Names, types, defaults and ranges of the configs that topics and storage nodes have.
