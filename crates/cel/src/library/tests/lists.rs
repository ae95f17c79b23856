use super::check;

#[test]
fn lists_are_compared() {
    check(
        r#"
        [1, 1, 2].isSorted() && !['b', 'a'].isSorted() && [duration('1s'), duration('2s')].isSorted() => true
        [1, 2].sum() => 3
        [1.5, 2.0].sum() => 3.5
        [duration('1s'), duration('2s')].sum() == duration('3s') => true
        dyn([]).sum() => 0
        [9223372036854775807, 1].sum() => error: integer overflow
        [2, 1].max() * 10 + [2, 1].min() => 21
        ['b', 'a'].min() => "a"
        [true, false].max() => true
        dyn([]).max() => error: max called on empty list
        [b'b', b'a'].min() == b'a' => true
        [1, 2, 3, 2].indexOf(2) * 10 + [1, 2, 3, 2].lastIndexOf(2) => 13
        ['a'].indexOf('b') => -1
        [dyn('a'), dyn(1)].indexOf(1) => 1
        "#,
    );
}

#[test]
fn lists_are_cut_and_sorted() {
    check(
        r#"
        [1, 2, 3].slice(1, 2) + [1].slice(1, 1) => [2]
        [1].slice(0, 2) => error: cannot slice(0, 2), list is length 1
        [1].slice(-1, 2) => error: cannot slice(-1, 2), negative indexes not supported
        [1].slice(1, 0) => error: cannot slice(1, 0), start index must be less than or equal to end index
        [[1], [2, 3]].flatten() => [1, 2, 3]
        [dyn(1), dyn([dyn(2), dyn([3])])].flatten(1) => [1, 2, [3]]
        [dyn(1), dyn([dyn(2), dyn([3])])].flatten(9) => [1, 2, 3]
        [dyn(1), dyn([2])].flatten(0) => [1, [2]]
        [[1]].flatten(-1) => error: level must be non-negative
        lists.range(3) => [0, 1, 2]
        lists.range(-1) => []
        [1, 2].reverse() => [2, 1]
        [1, 2, 1].distinct() => [1, 2]
        [dyn(1), dyn(1u), dyn(1.0), dyn('a')].distinct() => [1, "a"]
        [3, 1, 2].sort() + dyn([]).sort() => [1, 2, 3]
        ['b', 'a'].sort() => ["a", "b"]
        ['ccc', 'a', 'bb'].sortBy(x, size(x)) => ["a", "bb", "ccc"]
        [{'n': 2}, {'n': 1}].sortBy(x, x.n).map(x, x.n) => [1, 2]
        dyn(1).flatten() => error: no such overload: int.flatten()
        "#,
    );
}

#[test]
fn lists_are_sets() {
    check(
        r#"
        sets.contains([1, 2, 2], [2, 1]) && sets.contains([], []) && !sets.contains([1], [2]) => true
        sets.equivalent([1, 2], [2, 1, 1]) && !sets.equivalent([1, 2], [1]) => true
        sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], [2]) && !sets.intersects([], []) => true
        sets.contains([dyn(1), dyn(2.0)], [dyn(2u)]) => true
        "#,
    );
}

#[test]
fn sizes_of_results_are_bounded() {
    let text = "'".to_owned() + &"0123456789".repeat(10) + "'";
    for growth in [
        "lists.range(1000001)",
        "lists.range(2000).map(i, lists.range(1000)).flatten()",
        "optional.of(TEXT).optMap(a, a.replace('', a)).optMap(b, b.replace('', b))",
        "optional.of(TEXT).optMap(a, a.replace('', a)).optMap(b, lists.range(1000).map(i, b).join())",
        "optional.of(TEXT).optMap(a, a.replace('', a)).optMap(b, '%s'.format([lists.range(1000).map(i, b)]))",
    ] {
        let growth = growth.replace("TEXT", &text);
        check(&format!(
            "{growth} => error: operation cancelled: actual cost limit exceeded"
        ));
    }
    check("lists.range(1000000).size() => 1000000");
}
