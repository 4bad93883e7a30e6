/**
 * The candidate that was probably meant.
 * @param length of the part of the name that may be wrong
 * @returns null when more than a third of that part would be wrong
 */
export function nearestOf(name: string, candidates: Iterable<string>, length: number): string | null {
  const [nearest] = [...candidates]
    .map(candidate => ({ candidate, distance: distanceOf(name, candidate) }))
    .sort((one, other) => one.distance - other.distance)
  return nearest === undefined || nearest.distance * 3 > length ? null : nearest.candidate
}

/** Levenshtein's distance: inserted, removed and replaced characters. */
function distanceOf(one: string, other: string): number {
  let row = Array.from({ length: other.length + 1 }, (_, at) => at)
  for (let i = 1; i <= one.length; i++) {
    const next = [i]
    for (let j = 1; j <= other.length; j++) {
      const replaced = (row[j - 1] ?? 0) + (one[i - 1] === other[j - 1] ? 0 : 1)
      next.push(Math.min(replaced, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1))
    }
    row = next
  }
  return row[other.length] ?? 0
}
