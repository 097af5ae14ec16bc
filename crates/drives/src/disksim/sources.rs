//! Blocks in files of their own: `key = source FILE`.

use std::cell::Cell;

use super::text::{Block, DescriptionError, Value, parse};

/// The most files of a description. DiskSim's have up to four.
const FILES_MAX: u32 = 64;

/// The most bytes of one of them. Extracted layouts have two megabytes.
pub(super) const FILE_BYTES_MAX: u64 = 16 << 20;

/// The files of a description.
pub(super) struct Files<'r> {
    read: &'r dyn Fn(&str) -> Result<String, String>,
    count: Cell<u32>,
}

impl<'r> Files<'r> {
    /// Creates the files that `read` reads by their names.
    pub(super) fn new(read: &'r dyn Fn(&str) -> Result<String, String>) -> Files<'r> {
        Files { read, count: Cell::new(0) }
    }

    /// Returns a file's text.
    pub(super) fn text(&self, name: &str) -> Result<String, DescriptionError> {
        let wrong = |problem: String| DescriptionError {
            file: name.to_owned(),
            line: 0,
            key: "the file".to_owned(),
            problem,
        };
        self.count.set(self.count.get() + 1);
        if self.count.get() > FILES_MAX {
            let problem = "is named by a description of more than";
            return Err(wrong(format!("{problem} {FILES_MAX} files: does a file name itself?")));
        }
        (self.read)(name).map_err(wrong)
    }

    /// Returns the first block of a file, with the blocks that it names.
    pub(super) fn block(&self, name: &str) -> Result<Block, DescriptionError> {
        self.followed(parse(name, &self.text(name)?)?)
    }

    /// Returns a block with the blocks that it names in the place of their names.
    pub(super) fn followed(&self, mut block: Block) -> Result<Block, DescriptionError> {
        for (_, _, value) in &mut block.entries {
            self.follow(value)?;
        }
        Ok(block)
    }

    fn follow(&self, value: &mut Value) -> Result<(), DescriptionError> {
        match value {
            Value::Source(name) => *value = Value::Block(self.block(name)?),
            Value::Block(block) => *block = self.followed(std::mem::take(block))?,
            Value::List(list) => list.iter_mut().try_for_each(|value| self.follow(value))?,
            Value::Number(_) | Value::Word(_) => {}
        }
        Ok(())
    }
}
