import { createHash } from 'node:crypto'

/** A part of an image. */
export type Part = {
  name: string
  version: string
  type: 'library' | 'application' | 'operating-system'
  /** A package URL. */
  purl: string
  sha256?: string
}

/** A package of Debian. */
export function debianPart(
  { name, version, architecture, sha256 }: { name: string; version: string; architecture: string; sha256: string },
  suite: string,
): Part {
  // A plus sign in a package URL is written in hexadecimal.
  const [urlName, urlVersion] = [name, version].map(encodeURIComponent)
  const purl = `pkg:deb/debian/${urlName}@${urlVersion}?arch=${architecture}&distro=${suite}`
  return { name, version, type: 'library', purl, sha256 }
}

/** A package of npm. */
export function npmPart(name: string, version: string, type: Part['type'] = 'library'): Part {
  return { name, version, type, purl: `pkg:npm/${name.replace('@', '%40')}@${version}` }
}

/** The packages that a workspace consists of, with all that they need, as a package-lock.json has them. */
export function lockedParts(lock: PackageLock, workspace: string): Part[] {
  const found = new Map<string, Part>()
  const add = (names: readonly string[], folder: string) => {
    for (const name of names) {
      const place = [`${folder}/node_modules/${name}`, `node_modules/${name}`].find(path => lock.packages[path])
      const locked = place === undefined ? undefined : lock.packages[place]
      if (place === undefined || locked?.version === undefined)
        throw new Error(`package-lock.json does not have ${name}.`)
      if (found.has(place)) continue
      found.set(place, npmPart(name, locked.version))
      add(Object.keys(locked.dependencies ?? {}), place)
    }
  }
  add(Object.keys(lock.packages[workspace]?.dependencies ?? {}), workspace)
  return [...found.values()]
}

export type PackageLock = {
  packages: Readonly<Record<string, { version?: string; dependencies?: Readonly<Record<string, string>> }>>
}

/**
 * The text of a bill of materials in CycloneDX's format, the same for the same parts.
 * @param created seconds since 1970
 */
export function billOfMaterials(name: string, parts: readonly Part[], created: number): string {
  const components = parts
    .map(({ sha256, ...part }) => ({
      ...part,
      'bom-ref': part.purl,
      ...(sha256 !== undefined && { hashes: [{ alg: 'SHA-256', content: sha256 }] }),
    }))
    .sort((a, b) => (a.purl < b.purl ? -1 : 1))
  const digest = createHash('sha256').update(JSON.stringify(components)).digest('hex')
  const text = {
    bomFormat: 'CycloneDX',
    specVersion: '1.5',
    serialNumber: `urn:uuid:${uuidOf(digest)}`,
    version: 1,
    metadata: {
      timestamp: new Date(created * 1000).toISOString(),
      component: { type: 'operating-system', name, 'bom-ref': name, version: digest.slice(0, 12) },
    },
    components,
  }
  return `${JSON.stringify(text, null, 2)}\n`
}

/** A UUID of version 8, whose other bits anyone may choose. @param digest hexadecimal digits, at least 32 */
function uuidOf(digest: string): string {
  const [a, b, c, d, e] = [
    [0, 8],
    [8, 12],
    [13, 16],
    [17, 20],
    [20, 32],
  ].map(([from, to]) => digest.slice(from, to))
  return `${a}-${b}-8${c}-8${d}-${e}`
}
