/** Compares a version as HAProxy prints it, such as `2.6.12-1+deb12u4`, with a minimum. False if unparsable. */
export function isAtLeast(version: string, [minMajor, minMinor]: readonly [number, number]): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major > minMajor || (major === minMajor && minor >= minMinor)
}
