/** Parts of Keystone's API that this service does not have, and the beginnings of their paths below /v3. */
export const NOT_OFFERED: Readonly<Record<string, readonly string[]>> = {
  trusts: ['OS-TRUST'],
  policies: ['policies', 'OS-ENDPOINT-POLICY', 'endpoints/:id/OS-ENDPOINT-POLICY'],
  federation: ['OS-FEDERATION', 'auth/OS-FEDERATION'],
  OAuth: ['OS-OAUTH1', 'OS-OAUTH2', 'users/:id/OS-OAUTH1'],
  'endpoint filters': ['OS-EP-FILTER'],
  'inherited roles': ['OS-INHERIT'],
  'domain configuration': ['domains/:id/config', 'domains/config'],
  'EC2 and S3 tokens': ['ec2tokens', 's3tokens', 'users/:id/credentials/OS-EC2'],
  'access rules on their own': ['users/:id/access_rules'],
  'revocation events': ['OS-REVOKE'],
}

const PARTS = Object.entries(NOT_OFFERED).flatMap(([name, paths]) =>
  paths.map(path => ({ name, segments: path.toLowerCase().split('/') })),
)

/** The name of the part that a path belongs to; undefined for any other path. */
export function partNotOffered(path: string): string | undefined {
  const [, version, ...given] = path.toLowerCase().split('/')
  if (version !== 'v3') return undefined
  return PARTS.find(({ segments }) =>
    segments.every((segment, index) => segment === given[index] || (segment === ':id' && given[index] !== undefined)),
  )?.name
}
