//! Slow start batches: parallel requests that stop growing at the first failure.

use futures_util::future::join_all;

/// Runs `act` `n` times in batches of 1, 2, 4 … Stops after the first batch with a failure. Returns
/// the number of successes and the first error. An exhausted quota so costs one request, not
/// hundreds.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use std::cell::Cell;
/// use mizzen_sdk::controller::slow_start_batch;
///
/// let n_left = Cell::new(2); // the quota
/// let (n_made, outcome) = slow_start_batch(100, || async {
///     n_left.set(n_left.get() - 1);
///     if n_left.get() < 0 { Err("exceeded quota") } else { Ok(()) }
/// })
/// .await;
/// assert_eq!((n_made, outcome), (2, Err("exceeded quota")));
/// assert_eq!(n_left.get(), -1); // 1 + 2 calls
/// # });
/// ```
pub async fn slow_start_batch<E, F: Future<Output = Result<(), E>>>(
    n: usize,
    mut act: impl FnMut() -> F,
) -> (usize, Result<(), E>) {
    let (mut n_done, mut n_next) = (0, 1);
    while n_done < n {
        let n_batch = n_next.min(n - n_done);
        let outcomes = join_all((0..n_batch).map(|_| act())).await;
        n_done += outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        if let Some(error) = outcomes.into_iter().find_map(Result::err) {
            return (n_done, Err(error));
        }
        n_next *= 2;
    }
    (n_done, Ok(()))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Fails after `n_good` calls.
    async fn check(n: usize, n_good: usize, expect_done: usize, expect_calls: usize) {
        let n_calls = RefCell::new(0);
        let (n_done, outcome) = slow_start_batch(n, || async {
            *n_calls.borrow_mut() += 1;
            if *n_calls.borrow() > n_good {
                Err(())
            } else {
                Ok(())
            }
        })
        .await;
        assert_eq!((n_done, *n_calls.borrow()), (expect_done, expect_calls));
        assert_eq!(outcome.is_ok(), expect_done == n);
    }

    #[tokio::test]
    async fn a_failure_ends_it_after_the_batch() {
        check(0, 9, 0, 0).await;
        check(1, 9, 1, 1).await;
        check(10, 99, 10, 10).await;
        check(10, 0, 0, 1).await; // 1
        check(10, 2, 2, 3).await; // 1 + 2
        check(100, 4, 4, 7).await; // 1 + 2 + 4
    }
}
