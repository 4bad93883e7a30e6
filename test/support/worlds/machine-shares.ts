/** What machines of the tests may use of the host. */
export const SHARES = {
  limits: { memoryBytes: 512 * 1024 * 1024, processors: 2, processes: 1024 },
  accounts: { first: 1_900_000_000, count: 65_536 },
}
