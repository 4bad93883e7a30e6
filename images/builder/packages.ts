import type { Settings } from './arguments.js'

/** Which of Debian's packages a machine has. */
export type Selection = {
  /** What every machine has: Debian's essential packages, with apt or without it. */
  variant: 'essential' | 'minbase'
  packages: readonly string[]
  /** A script that mmdebstrap runs, with the new root, once the packages are configured. */
  script?: string
}

/** What an amphora consists of, beside Node.js and the agent. */
const AMPHORA_PACKAGES = [
  'busybox-static',
  'ca-certificates',
  'conntrack',
  'haproxy',
  'iproute2',
  'iputils-ping',
  'keepalived',
  'kmod',
  // Accounts without a shell need its nologin: sshd refuses an account whose shell is not there.
  'login',
  'libstdc++6',
  'mount',
  'netbase',
  'nftables',
  'openssh-client',
  'openssh-server',
  'perl-base',
  'procps',
]

export const AMPHORA: Selection = { variant: 'essential', packages: AMPHORA_PACKAGES }

/** Debian's kernel for virtual machines; it depends on the package of the newest one. */
export const KERNEL_PACKAGE = 'linux-image-cloud-amd64'

/** Documents and translations stay out, but not the licences. */
const EXCLUDED = ['/usr/share/doc/*', '/usr/share/info/*', '/usr/share/locale/*', '/usr/share/man/*']

/** Lines of apt's sources. */
export function sourcesOf({ suite, mirror, securityMirror }: Settings): string[] {
  return [
    `deb ${mirror} ${suite} main`,
    `deb ${mirror} ${suite}-updates main`,
    `deb ${securityMirror} ${suite}-security main`,
  ]
}

/**
 * Words for mmdebstrap, which makes the tar archive of a root file system.
 * @param hooks shell commands, which get the new root as `$1`
 */
export function mmdebstrapWords(
  settings: Settings,
  { variant, packages }: Selection,
  archive: string,
  hooks: readonly string[],
): string[] {
  return [
    ...['--mode=root', `--variant=${variant}`, '--format=tar', `--include=${packages.join(',')}`],
    '--aptopt=Acquire::Languages "none"',
    '--aptopt=Acquire::Retries "3"',
    ...EXCLUDED.map(path => `--dpkgopt=path-exclude=${path}`),
    '--dpkgopt=path-include=/usr/share/doc/*/copyright',
    ...hooks.map(hook => `--customize-hook=${hook}`),
    ...[settings.suite, archive, ...sourcesOf(settings)],
  ]
}

/** A package of the image, as the archive describes it. */
export type Package = { name: string; version: string; architecture: string; source: string; sha256: string }

/**
 * Reads what `apt-cache show` printed about packages.
 * @returns them by name
 * @throws Error for a package that the archive does not describe completely
 */
export function parsePackages(text: string): Package[] {
  const records = text.split('\n\n').filter(record => record.trim() !== '')
  const packages = records.map(record => {
    const field = (name: string) => new RegExp(`^${name}: (.*)$`, 'm').exec(record)?.[1]?.trim()
    const [name, version, architecture, sha256] = ['Package', 'Version', 'Architecture', 'SHA256'].map(field)
    if (name === undefined || version === undefined || architecture === undefined || sha256 === undefined) {
      throw new Error(`The archive does not describe this package completely:\n${record}`)
    }
    return { name, version, architecture, source: field('Source')?.replace(/ .*/, '') ?? name, sha256 }
  })
  return packages.sort((a, b) => (a.name < b.name ? -1 : 1))
}
