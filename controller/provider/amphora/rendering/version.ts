/** Whether a version as HAProxy prints it, such as `2.6.12-1+deb12u4`, is that one or newer; false for what is none. */
export function isAtLeast(version: string, [oldestMajor, oldestMinor]: readonly [number, number]): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number)
  return major > oldestMajor || (major === oldestMajor && minor >= oldestMinor)
}
