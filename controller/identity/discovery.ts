/** The version document that clients read before they log in. @param base where the client reached us, without /v3 */
export function versionDocument(base: string) {
  return {
    id: 'v3.14',
    status: 'stable',
    updated: '2020-04-07T00:00:00Z',
    links: [{ rel: 'self', href: `${base}/v3/` }],
    'media-types': [{ base: 'application/json', type: 'application/vnd.openstack.identity-v3+json' }],
  }
}

export type Location = {
  /** The scheme, host and path prefix by which clients reach us: hrefs begin with it. */
  base: string
  /** The path of the request without the prefix. */
  path: string
}

/**
 * Where a request came to. Behind a proxy that ends TLS the configured public URL tells the scheme, but only for requests that came to its host:
 * who reaches us by another name must get hrefs that it can reach.
 * @param publicUrl as configured, with or without /v3
 * @param origin scheme and host by which the client reached us
 */
export function locate(publicUrl: URL | null, origin: string, path: string): Location {
  const configured = publicUrl?.pathname.replace(/\/(v3\/?)?$/, '') ?? ''
  const prefix = [configured, '/identity'].find(prefix => prefix !== '' && `${path}/`.startsWith(`${prefix}/`)) ?? ''
  const seen = publicUrl !== null && origin.replace(/^https?:\/\//, '') === publicUrl.host ? publicUrl.origin : origin
  return { base: `${seen}${prefix}`, path: path.slice(prefix.length) || '/' }
}
