/** The version document, which clients read before they log in. @param base the service's URL without /v3 */
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
  /** The scheme, host and path prefix by which the client reached the service: hrefs start with it. */
  base: string
  /** The request's path without the prefix. */
  path: string
}

/**
 * Splits a request's URL into base and path. Behind a proxy that terminates TLS, the configured public URL supplies the
 * scheme, but only for requests to its host: clients that use another host name must get hrefs that they can reach.
 * @param publicUrl as configured, with or without /v3
 * @param origin scheme and host by which the client reached the service
 */
export function locate(publicUrl: URL | null, origin: string, path: string): Location {
  const configured = publicUrl?.pathname.replace(/\/(v3\/?)?$/, '') ?? ''
  const prefix = [configured, '/identity'].find(prefix => prefix !== '' && `${path}/`.startsWith(`${prefix}/`)) ?? ''
  const visibleOrigin =
    publicUrl !== null && origin.replace(/^https?:\/\//, '') === publicUrl.host ? publicUrl.origin : origin
  return { base: `${visibleOrigin}${prefix}`, path: path.slice(prefix.length) || '/' }
}
