//! Parallel work, with as many items at a time as there are cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Runs `work` on each item, `jobs` at a time (by default as many as there are cores), and returns
/// the results in the order of the items.
pub fn each<T: Sync, R: Send>(
    items: &[T],
    jobs: Option<usize>,
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let jobs = jobs.unwrap_or(cores).clamp(1, items.len().max(1));
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(number) else { return };
                    let result = work(item);
                    let mut slot = results[number].lock().expect("nobody panics while it is held");
                    *slot = Some(result);
                }
            });
        }
    });
    let result = |slot: Mutex<Option<R>>| slot.into_inner().expect("nobody panicked holding it");
    results.into_iter().map(|slot| result(slot).expect("every item was worked on")).collect()
}
