//! Newtype ids and the dense table they index.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

/// A small dense integer that identifies one item of one kind.
pub trait Id: Copy + Ord {
    /// Returns the id with this position in its table.
    fn from_index(index: usize) -> Self;
    /// Returns the position in the table.
    fn index(self) -> usize;
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl Id for $name {
            fn from_index(index: usize) -> Self {
                Self(u32::try_from(index).expect("there are fewer than 2^32 ids"))
            }
            fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// The engine's handle of a job, numbered in order of submission. Ties between jobs are always broken by it.
    JobKey
);
id!(
    /// A node.
    NodeId
);
id!(
    /// A zone above the nodes in the topology: a rack, a switch, a group of racks.
    ZoneId
);
id!(
    /// A GPU type ("V100").
    GpuTypeId
);
id!(
    /// A set of nodes to which jobs can be limited.
    NodeConstraintId
);
id!(
    /// A tenant: the owner of jobs, such as a team with a virtual cluster.
    TenantId
);
id!(
    /// A user.
    UserId
);
id!(
    /// A model with a profile ("resnet50").
    ModelId
);
impl NodeConstraintId {
    /// The most node constraints at a time.
    pub const MAX_COUNT: u32 = 64;
}

id!(
    /// The engine's handle of an attempt: how often the job has been launched. An answer for an older attempt is ignored.
    AttemptKey
);

/// A vector indexed by one kind of id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdVec<I, T> {
    items: Vec<T>,
    #[serde(skip)]
    kind: PhantomData<I>,
}

impl<I, T> Default for IdVec<I, T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            kind: PhantomData,
        }
    }
}

impl<I: Id, T> IdVec<I, T> {
    /// Appends an item and returns its id.
    pub fn push(&mut self, item: T) -> I {
        self.items.push(item);
        I::from_index(self.items.len() - 1)
    }

    /// Returns the item, if the id exists.
    pub fn get(&self, id: I) -> Option<&T> {
        self.items.get(id.index())
    }

    /// Returns the item for modification, if the id exists.
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.items.get_mut(id.index())
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns all items with their ids, in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (I, &T)> + ExactSizeIterator {
        self.items
            .iter()
            .enumerate()
            .map(|(i, item)| (I::from_index(i), item))
    }

    /// Returns all items, in order.
    pub fn values(&self) -> std::slice::Iter<'_, T> {
        self.items.iter()
    }

    /// Returns all items for modification, in order.
    pub fn values_mut(&mut self) -> std::slice::IterMut<'_, T> {
        self.items.iter_mut()
    }
}

impl<I: Id, T: Default> IdVec<I, T> {
    /// Returns the item at `id`; the table is extended with defaults up to it.
    pub fn entry(&mut self, id: I) -> &mut T {
        if id.index() >= self.items.len() {
            self.items.resize_with(id.index() + 1, T::default);
        }
        &mut self.items[id.index()]
    }
}

impl<I, T> FromIterator<T> for IdVec<I, T> {
    fn from_iter<It: IntoIterator<Item = T>>(iter: It) -> Self {
        Self {
            items: iter.into_iter().collect(),
            kind: PhantomData,
        }
    }
}

impl<I: Id, T> Index<I> for IdVec<I, T> {
    type Output = T;
    fn index(&self, id: I) -> &T {
        &self.items[id.index()]
    }
}

impl<I: Id, T> IndexMut<I> for IdVec<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        &mut self.items[id.index()]
    }
}
