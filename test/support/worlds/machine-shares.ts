/** The host's resources that test machines may use. */
export const SHARES = {
  limits: { memoryBytes: 512 * 1024 * 1024, processors: 2, processes: 1024 },
  accounts: { first: 1_900_000_000, count: 65_536 },
}
