//! Uses of parameters inside an activation-checkpointed block, whose graph keeps its values.

use std::cell::RefCell;

use burn::backend::autodiff::NodeId;

thread_local! {
    /// For each use in the block whose second pass runs on this thread, its node and that of the leaf.
    static USES: RefCell<Option<Vec<(NodeId, NodeId)>>> = const { RefCell::new(None) };
}

/// Runs the second pass of a block; also returns the node and the leaf's node of each use.
pub(crate) fn in_block<R>(work: impl FnOnce() -> R) -> (R, Vec<(NodeId, NodeId)>) {
    /// Restores what was before, even if `work` panics.
    struct Before(Option<Vec<(NodeId, NodeId)>>);
    impl Drop for Before {
        fn drop(&mut self) {
            USES.set(self.0.take());
        }
    }
    let _before = Before(USES.replace(Some(Vec::new())));
    let result = work();
    (result, USES.take().unwrap_or_default())
}

/// Returns true in the second pass of a block.
pub(super) fn is_inside() -> bool {
    USES.with_borrow(Option::is_some)
}

/// Notes a use in a block.
pub(super) fn note(used: Option<NodeId>, leaf: Option<NodeId>) {
    USES.with_borrow_mut(|uses| uses.iter_mut().for_each(|uses| uses.extend(used.zip(leaf))));
}
