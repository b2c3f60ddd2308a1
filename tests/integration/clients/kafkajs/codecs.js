// The codecs that kafkajs leaves to other packages; those here need no compiler.
const { CompressionCodecs, CompressionTypes } = require('kafkajs')
const SnappyCodec = require('kafkajs-snappy')
const lz4 = require('lz4js')
const zstd = require('@bokuweb/zstd-wasm')

const ONE_BLOCK_BYTES = 4 * 1024 * 1024

/** An LZ4 frame as Kafka takes it: lz4js calls its blocks dependent, which for a single block means nothing. */
function compressLz4(data) {
  if (data.length > ONE_BLOCK_BYTES) throw new RangeError('more than one LZ4 block')
  const frame = Buffer.from(lz4.compress(data))
  frame[4] = 0x60 // version 1, independent blocks
  frame[6] = 0x73 // the checksum of that header
  return frame
}

/** Makes kafkajs write and read every codec. */
async function installCodecs() {
  await zstd.init()
  const codec = ({ compress, decompress }) => () => ({
    compress: async (encoder) => Buffer.from(compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(decompress(buffer)),
  })
  CompressionCodecs[CompressionTypes.Snappy] = SnappyCodec
  CompressionCodecs[CompressionTypes.LZ4] = codec({ compress: compressLz4, decompress: lz4.decompress })
  CompressionCodecs[CompressionTypes.ZSTD] = codec(zstd)
}

module.exports = { installCodecs }
