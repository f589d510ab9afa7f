//! A list whose length is checked while it is read.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};

/// A list of at most `MAX` items. The item after them ends the reading: a body with millions of small
/// items takes no more memory than its bytes.
#[derive(Debug)]
pub(crate) struct Bounded<T, const MAX: usize>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Items(PhantomData))
    }
}

struct Items<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of up to {MAX} items")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MAX {
                return Err(A::Error::custom(format!(
                    "the list is too long: it has up to {MAX} items"
                )));
            }
            list.push(item);
        }
        Ok(Bounded(list))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_ends_at_the_first_item_too_many() {
        let read = serde_json::from_str::<Bounded<u8, 2>>;
        assert_eq!(read("[1, 2]").expect("it fits").0, [1, 2]);
        // What follows is not read: it is no JSON.
        let error = read("[1, 2, 3, NaN").expect_err("it is too long");
        assert!(error.is_data(), "{error}");
        assert!(read("{}").expect_err("no list").is_data());
    }
}
