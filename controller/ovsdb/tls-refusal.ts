/**
 * What an error of TLS means for whoever has set it up, in words; null for other errors.
 * @param code of Node.js
 */
export function tlsRefusal(code: string | undefined, message: string): string | null {
  // An alert is what the server says; the rest is what Krater thinks of the server's certificate.
  const alert = /^ERR_SSL_(?:TLSV1|SSLV3|TLSV13)_ALERT_(\w+)$/.exec(code ?? '')?.[1]
  if (alert !== undefined)
    return `it does not accept Krater's certificate (${alert.toLowerCase().replaceAll('_', ' ')}): see ovn.certificate_file`
  if (code !== undefined && VERIFICATION.test(code))
    return `its certificate is not by an authority in ovn.ca_file, or is not valid now (${message})`
  if (code === 'ERR_SSL_WRONG_VERSION_NUMBER' || code === 'ERR_SSL_PACKET_LENGTH_TOO_LONG')
    return 'it does not speak TLS: its address may begin with tcp: instead of ssl:'
  return null
}

const VERIFICATION = /^(?:UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|CERT_)/
